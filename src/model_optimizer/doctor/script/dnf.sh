# The version of an installed package; empty when it is not installed.
installed() { rpm -q --qf '%{VERSION}\n' "$1" 2>/dev/null | grep -v 'not installed' | tail -n 1 || true; }
