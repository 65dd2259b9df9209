# title: no remnants of another driver
# for: driver_installed module_flavour dkms_built driver_library runtime_fits_driver target_driver
# warn: driver_branch target_driver ptx_fits_driver
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
