
# Arrays, groups and mount points come from the program; what it does not know about is completed above.
_zarrfs_names() {
    local line=${COMP_LINE:0:COMP_POINT} names
    if ! names=$(_zarrfs_export "$line" && command zarrfs __complete bash "$line" "$2" 2>/dev/null); then
        _zarrfs "$@"
        return
    fi
    COMPREPLY=()
    compopt +o default +o bashdefault
    [[ -z $names ]] || mapfile -t COMPREPLY <<<"$names"
    [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != */ ]] || compopt -o nospace
}

# Lets the program see the variables of a line.
_zarrfs_export() {
    local rest=$1
    while [[ $rest =~ \$\{?([A-Za-z_][A-Za-z_0-9]*) ]]; do
        export "${BASH_REMATCH[1]}"
        rest=${rest#*"${BASH_REMATCH[0]}"}
    done
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _zarrfs_names -o nosort -o bashdefault -o default zarrfs
else
    complete -F _zarrfs_names -o bashdefault -o default zarrfs
fi
