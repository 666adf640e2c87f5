# zsh -f complete.zsh FOLDER LINE…: types each line into a zsh with the completions in FOLDER, and prints what zarrfs gets.
zmodload zsh/zpty
zpty typed 'TERM=dumb zsh -f -i'
zpty -w typed "PS1='> '; unset zle_bracketed_paste; fpath=(${(q)1} \$fpath); autoload -U compinit; compinit -u -D"
zpty -w typed "zarrfs() { printf '<%s>' \"\$@\"; print EN''D }; S='my store.zarr'; print RE''ADY"
zpty -r -m typed shown '*READY*'
shift
for line; do
    zpty -w typed "$line"
    zpty -r -m typed shown '*END*' || exit 1
    shown=${shown%END*}
    print -r -- "${shown##*$'\n'}"
done
zpty -d typed
