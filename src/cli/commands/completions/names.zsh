# Arrays, groups and mount points come from the program; what it does not know about is completed below.
_zarrfs() {
    local line="${(j: :)words[1,CURRENT-1]} $IPREFIX$QIPREFIX$PREFIX" names
    if ! names=$(_zarrfs_export "$line" && command zarrfs __complete zsh "$line" 2>/dev/null); then
        _zarrfs_definition "$@"
        return
    fi
    local -a found groups others
    found=("${(@f)names}")
    groups=(${(M)found:#*/})
    others=(${found:#(*/|)})
    compset -P '*/'
    local ret=1
    (( $#groups )) && compadd -q -S / -- "${(@)groups%/}" && ret=0
    (( $#others )) && compadd -- "${(@)others}" && ret=0
    return ret
}

# Lets the program see the variables of a line.
_zarrfs_export() {
    local rest=$1 match mbegin mend MATCH MBEGIN MEND
    while [[ $rest =~ '\$\{?([A-Za-z_][A-Za-z_0-9]*)' ]]; do
        export "$match[1]"
        rest=${rest#*"$MATCH"}
    done
}

