//! Repositories of Icechunk, made by its Python package, in folders and at services, and read back by zarr-python.

mod catalogue;
mod commits;
mod made;
mod reading;
mod refusals;
mod users;
mod virtual_chunks;
mod writing;
