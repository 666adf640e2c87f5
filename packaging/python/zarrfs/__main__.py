"""`python -m zarrfs` is the program."""

import os
import sys

from . import program

path = program()
os.execv(path, [str(path), *sys.argv[1:]])
