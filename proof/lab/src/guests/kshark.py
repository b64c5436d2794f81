"""Prints the entries that KernelShark's library loads of trace.dat files, merged by its own order:
the number of the file, nanoseconds, the event and its text, with tabs between them."""

import ctypes
import sys

library = ctypes.CDLL("libkshark.so.2")


class Entry(ctypes.Structure):
    _fields_ = [
        ("next", ctypes.c_void_p),
        ("visible", ctypes.c_uint16),
        ("stream", ctypes.c_int16),
        ("event", ctypes.c_int16),
        ("cpu", ctypes.c_int16),
        ("pid", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("time", ctypes.c_int64),
    ]


Entries = ctypes.POINTER(ctypes.POINTER(Entry))
library.kshark_instance.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
library.kshark_instance.restype = ctypes.c_bool
library.kshark_open.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
library.kshark_tep_init_all_buffers.argtypes = [ctypes.c_void_p, ctypes.c_int]
library.kshark_load_all_entries.argtypes = [ctypes.c_void_p, ctypes.POINTER(Entries)]
library.kshark_load_all_entries.restype = ctypes.c_ssize_t
for name in ("kshark_get_event_name", "kshark_get_info"):
    function = getattr(library, name)
    function.argtypes = [ctypes.POINTER(Entry)]
    function.restype = ctypes.c_char_p

context = ctypes.c_void_p()
if not library.kshark_instance(ctypes.byref(context)):
    sys.exit("no context of libkshark")
files = {}
for number, file in enumerate(sys.argv[1:]):
    first = library.kshark_open(context, file.encode())
    buffers = library.kshark_tep_init_all_buffers(context, first)
    if first < 0 or buffers < 0:
        sys.exit(f"{file}: libkshark cannot open it: {first}, {buffers}")
    files.update((stream, number) for stream in range(first, first + 1 + buffers))
rows = Entries()
count = library.kshark_load_all_entries(context, ctypes.byref(rows))
if count < 0:
    sys.exit(f"libkshark cannot load the entries: {count}")
for at in range(count):
    entry = rows[at]
    texts = library.kshark_get_event_name(entry), library.kshark_get_info(entry)
    name, text = (text.decode(errors="replace").strip() for text in texts)
    print(files[entry.contents.stream], entry.contents.time, name, text, sep="\t")
