! write_records FILE NEW SECOND LENGTH COUNT [NUMBER...]: by direct access, writes COUNT records of LENGTH bytes of NEW to
! FILE, from the last to the first, and then those with a NUMBER from SECOND.
program write_records
  implicit none
  character(len=4096) :: word
  character(len=:), allocatable :: record
  integer :: length, count, i, number, out, new, second

  call get_command_argument(4, word)
  read (word, *) length
  call get_command_argument(5, word)
  read (word, *) count
  allocate (character(len=length) :: record)

  call get_command_argument(1, word)
  open (newunit=out, file=trim(word), access='direct', form='unformatted', recl=length, status='old', action='readwrite')
  call get_command_argument(2, word)
  open (newunit=new, file=trim(word), access='direct', form='unformatted', recl=length, status='old', action='read')
  call get_command_argument(3, word)
  open (newunit=second, file=trim(word), access='direct', form='unformatted', recl=length, status='old', action='read')
  do i = count, 1, -1
    read (new, rec=i) record
    write (out, rec=i) record
  end do
  do i = 6, command_argument_count()
    call get_command_argument(i, word)
    read (word, *) number
    read (second, rec=number) record
    write (out, rec=number) record
  end do
  close (out)
  close (new)
  close (second)
end program write_records
