"""Messages between the parent and a zygote; one seqpacket each, fixed sizes."""

import struct

HELLO = struct.Struct("<IiI")  # barriers that hold, Landlock ABI, user id
SPAWN = struct.Struct("<ddQ")  # wall seconds, processor seconds, bytes of memory; carries the data socket
STATUS = struct.Struct("<iiddq")  # pid, wait status, user seconds, system seconds, peak resident kB
KILL = b"K"
