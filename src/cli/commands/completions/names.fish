
# Arrays, groups and mount points come from the program; what it does not know about is completed above.
function __zarrfs_names
    set -l line (commandline -cp | string collect)
    set -g __zarrfs_found (command zarrfs __complete fish "$line" 2>/dev/null)
end
complete -c zarrfs -n __zarrfs_names -f -a '$__zarrfs_found'
