#!/usr/bin/env bash
# Made by `mopt doctor --script` from what was read on 2026-11-30. Read it before you run it.
# It makes so:
#   1. no remnants of another driver
#   2. the headers of the running kernel
#   3. the driver, of a branch that is served
#   4. unattended upgrades leave the driver alone
#   5. the driver's module is loaded and answers
#   6. the CDI file describes the driver that is loaded
# What is so already is left alone, so it may be run again at any time. It stops where a
# reboot or a person is needed, and goes on from there. With --check it only says what is
# missing. Where root is needed it asks for it with sudo.

# ... prelude

made_for='ubuntu 22.04'
if [ "$(os_release ID) $(os_release VERSION_ID)" != "$made_for" ]; then
  by_hand "this script is for $made_for" "make one here: mopt doctor --script"
fi

# ... apt

branch=580
driver_package=nvidia-driver-580-server-open

remnants() { # packages of other branches, also those of which only settings are left
  # shellcheck disable=SC2016 # these are fields of dpkg-query
  dpkg-query -W -f='${db:Status-Abbrev} ${binary:Package}\n' 'nvidia-*' 'libnvidia-*' 'linux-*-nvidia-*' 2>/dev/null |
    awk -v keep="$branch" '$1 != "un" && match($2, /-[0-9][0-9][0-9](-|:|$)/) && substr($2, RSTART + 1, 3) != keep { print $2 }' || true
}
have_remnants() { [ ! -x "$root/usr/bin/nvidia-uninstall" ] && [ -z "$(remnants)" ]; }
do_remnants() {
  local names
  apt_get update
  # Nothing is taken away before what replaces it is known to be there.
  apt-cache show "$driver_package" >/dev/null ||
    by_hand "the archive has no $driver_package" 'enable the component restricted: sudo add-apt-repository restricted'
  if [ -x "$root/usr/bin/nvidia-uninstall" ]; then as_root nvidia-uninstall --silent; fi
  mapfile -t names < <(remnants)
  if [ "${#names[@]}" -gt 0 ]; then
    as_root apt-mark unhold "${names[@]}"
    apt_get purge "${names[@]}"
  fi
}
step remnants 'no remnants of another driver'

have_headers() { [ -e "$root/lib/modules/$(uname -r)/build" ]; }
do_headers() {
  apt_get update
  apt-cache show "linux-headers-$(uname -r)" >/dev/null 2>&1 ||
    by_hand "the archive has no headers for kernel $(uname -r) any more" 'sudo apt-get full-upgrade && sudo reboot'
  apt_get install "linux-headers-$(uname -r)"
}
step headers 'the headers of the running kernel'

have_driver() { [ -n "$(installed "$driver_package")" ]; }
do_driver() {
  apt_get update
  apt_get install "$driver_package"
}
step driver 'the driver, of a branch that is served'

loose() { # installed packages of the driver that are not held; sudo apt-mark unhold lets them go again
  # shellcheck disable=SC2016 # these are fields of dpkg-query
  dpkg-query -W -f='${db:Status-Abbrev} ${binary:Package}\n' 'nvidia-*' 'libnvidia-*' 'cuda-drivers*' libcuda1 2>/dev/null |
    awk '$1 ~ /^ii/ && $2 !~ /container/ { print $2 }' || true
}
have_pin() { [ -z "$(loose)" ]; }
do_pin() {
  local names
  mapfile -t names < <(loose)
  as_root apt-mark hold "${names[@]}"
}
step pin 'unattended upgrades leave the driver alone'

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
