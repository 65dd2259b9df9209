# title: unattended upgrades leave the driver alone
# for: module_matches_library driver_installed module_flavour dkms_built driver_library runtime_fits_driver target_driver
# place: ubuntu debian
# warn: driver_branch target_driver ptx_fits_driver
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
