#!/bin/bash
# A module of dracut: puts `lastwords` and the script that saves the trace into the first file system of a crash kernel. Fedora's and RHEL's
# kdump runs the script before it makes the dump; elsewhere it runs when the root file system is mounted.

check() {
    require_binaries lastwords timeout || return 1
    # mkdumprd sets the variable. In other file systems the module is included only where it is named:
    # add_dracutmodules+=" lastwords ".
    [[ ${IN_KDUMP-} ]] || return 255
}

depends() {
    return 0
}

install() {
    inst_multiple cat date grep lastwords mkdir mount stat sync tail timeout tr
    inst_simple /usr/lib/lastwords/save-trace
    # kdump.conf(5): all files in this folder are run before the dump is made.
    inst_simple /usr/lib/lastwords/save-trace /etc/kdump/pre.d/lastwords
    # shellcheck disable=SC2154 # dracut sets the folder of the module.
    inst_hook pre-pivot 50 "$moddir/save-trace-hook.sh"
}
