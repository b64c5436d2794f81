#!/bin/sh
# Installs header, libraries and pkg-config file:  cargo build --release -p lastwords-capi && crates/capi/install.sh PREFIX [LIBS]
# LIBS is the folder where cargo put the libraries; default: target/release of this workspace. DESTDIR is honoured, and
# LIBDIR, the folder of libraries below PREFIX (default: lib).
set -eu
if [ $# -lt 1 ]; then
    echo "usage: install.sh PREFIX [LIBS]" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
prefix=$1
libs=${2:-$here/../../target/release}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -n 1)
root=${DESTDIR:-}$prefix
libdir=${LIBDIR:-lib}
for file in liblastwords_c.so liblastwords_c.a; do
    if [ ! -f "$libs/$file" ]; then
        echo "install.sh: $libs/$file is missing: cargo build --release -p lastwords-capi" >&2
        exit 1
    fi
done
mkdir -p "$root/include" "$root/$libdir/pkgconfig"
install -m 644 "$here/include/lastwords.h" "$here/include/lastwords_event.h" "$root/include/"
install -m 755 "$libs/liblastwords_c.so" "$root/$libdir/liblastwords.so.$version"
install -m 644 "$libs/liblastwords_c.a" "$root/$libdir/liblastwords.a"
ln -sf "liblastwords.so.$version" "$root/$libdir/liblastwords.so.0"
ln -sf liblastwords.so.0 "$root/$libdir/liblastwords.so"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@VERSION@|$version|" "$here/lastwords.pc.in" > "$root/$libdir/pkgconfig/lastwords.pc"
