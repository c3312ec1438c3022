"""Files and programs that show what the machine is doing, and devices that give random bytes."""

MACHINE_STATE_FOLDERS = ("/proc/", "/sys/")
RANDOM_DEVICES = ("/dev/urandom", "/dev/random", "/dev/hwrng")
RANDOM_FILES = "/proc/sys/kernel/random/"
MACHINE_FILE = "open of machine state"
"""The fact that one of the files was read."""
STARTED_PROGRAM = "subprocess"
"""The fact that a program was started and read; it is the command line."""
MACHINE_FACTS = (MACHINE_FILE, "os.sysconf", "os.getloadavg", "os.statvfs")
"""Facts that are other ones in every run, as the machine has more or less to do."""
TIME_PROGRAMS = ("date", "uptime")
STATE_PROGRAMS = ("free", "df", "du", "ps", "top", "vmstat", "nvidia-smi", "who", "mktemp", "uuidgen")
"""Programs that print another text in every run, or at other times."""
