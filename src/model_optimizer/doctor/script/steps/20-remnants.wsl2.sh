# title: no Linux driver inside WSL2
# for: wsl_driver_inside
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
