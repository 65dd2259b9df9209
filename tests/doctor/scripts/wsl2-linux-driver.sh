#!/usr/bin/env bash
# Made by `mopt doctor --script` from what was read on 2026-11-30. Read it before you run it.
# It makes so:
#   1. no Linux driver inside WSL2
#   2. WSL2 has the libcuda of Windows
# What is so already is left alone, so it may be run again at any time. It stops where a
# reboot or a person is needed, and goes on from there. With --check it only says what is
# missing. Where root is needed it asks for it with sudo.

# ... prelude

made_for='ubuntu 24.04'
if [ "$(os_release ID) $(os_release VERSION_ID)" != "$made_for" ]; then
  by_hand "this script is for $made_for" "make one here: mopt doctor --script"
fi

# ... apt

branch=580

remnants() {
  # shellcheck disable=SC2016 # these are fields of dpkg-query
  dpkg-query -W -f='${db:Status-Abbrev} ${binary:Package}\n' 'nvidia-driver*' 'nvidia-dkms*' 'nvidia-open*' 'libnvidia-*' 'cuda-drivers*' libcuda1 2>/dev/null |
    awk '$1 != "un" && $2 !~ /^libnvidia-container/ { print $2 }' || true
}
have_remnants() { [ -z "$(remnants)" ]; }
do_remnants() {
  local names
  mapfile -t names < <(remnants)
  apt_get purge "${names[@]}"
  apt_get autoremove
  as_root ldconfig
}
step remnants 'no Linux driver inside WSL2'

have_libcuda() { [ -e "$root/usr/lib/wsl/lib/libcuda.so.1" ]; }
do_libcuda() {
  by_hand 'Windows provides no libcuda' \
    "on Windows: install driver $branch or newer with the NVIDIA App" \
    'in PowerShell: wsl --update; wsl --shutdown'
}
step libcuda 'WSL2 has the libcuda of Windows'

if command -v nvidia-smi >/dev/null; then timeout 30 nvidia-smi -L || true; fi

# ... finish
