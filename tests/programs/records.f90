! records FILE COPY NX NRECORDS: reads FILE as 32-bit reals, once as a stream and once as records of NX elements,
! backwards, and writes the records to COPY. Stops with 1 where the two ways of reading differ.
program records
  implicit none
  character(len=4096) :: file, copy, word
  integer :: nx, n, i, in, out
  real(4), allocatable :: whole(:, :), record(:)

  call get_command_argument(1, file)
  call get_command_argument(2, copy)
  call get_command_argument(3, word)
  read (word, *) nx
  call get_command_argument(4, word)
  read (word, *) n
  allocate (whole(nx, n), record(nx))

  open (newunit=in, file=trim(file), access='stream', form='unformatted', status='old', action='read')
  read (in) whole
  close (in)

  open (newunit=in, file=trim(file), access='direct', form='unformatted', recl=4*nx, status='old', action='read')
  open (newunit=out, file=trim(copy), access='direct', form='unformatted', recl=4*nx, status='replace', action='write')
  do i = n, 1, -1
    read (in, rec=i) record
    if (any(transfer(record, [0]) /= transfer(whole(:, i), [0]))) error stop 1
    write (out, rec=i) record
  end do
  close (in)
  close (out)
end program records
