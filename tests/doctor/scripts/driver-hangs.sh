#!/usr/bin/env bash
# Made by `mopt doctor --script` from what was read on 2026-11-30. Read it before you run it.
# It makes so:
#   1. the driver's module is loaded and answers
#   2. the CDI file describes the driver that is loaded
# What is so already is left alone, so it may be run again at any time. It stops where a
# reboot or a person is needed, and goes on from there. With --check it only says what is
# missing. Where root is needed it asks for it with sudo.

# ... prelude

made_for='ubuntu 24.04'
if [ "$(os_release ID) $(os_release VERSION_ID)" != "$made_for" ]; then
  by_hand "this script is for $made_for" "make one here: mopt doctor --script"
fi

# ... apt

have_module() { [ -e "$root/proc/driver/nvidia/version" ] && timeout 20 nvidia-smi -L >/dev/null 2>&1; }
do_module() {
  if [ ! -e "$root/proc/driver/nvidia/version" ]; then
    if command -v dkms >/dev/null; then as_root dkms autoinstall || true; fi
    if as_root modprobe nvidia && have_module; then return 0; fi
  fi
  reboot_point module # the old module, or nouveau, leaves only with the kernel
}
step module 'the driver'"'"'s module is loaded and answers'

driver_now() { timeout 20 nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sed -n 1p || true; }
cdi_files() { grep -lsF nvidia.com/gpu "$root"/etc/cdi/* "$root"/var/run/cdi/* || true; }
have_cdi() {
  local files file version
  version=$(driver_now)
  [ -n "$version" ] || return 1
  mapfile -t files < <(cdi_files)
  [ "${#files[@]}" -gt 0 ] || return 1
  for file in "${files[@]}"; do grep -qF ".so.$version" "$file" || return 1; done
}
do_cdi() {
  local files file
  mapfile -t files < <(cdi_files)
  if [ "${#files[@]}" -eq 0 ]; then files=("$root/etc/cdi/nvidia.yaml"); fi
  for file in "${files[@]}"; do
    as_root mkdir -p -- "$(dirname -- "$file")"
    as_root nvidia-ctk cdi generate --output="$file"
  done
}
step cdi 'the CDI file describes the driver that is loaded'

if command -v nvidia-smi >/dev/null; then timeout 30 nvidia-smi -L || true; fi

# ... finish
