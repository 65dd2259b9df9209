# title: no remnants of another driver
# for: driver_installed module_flavour dkms_built driver_library runtime_fits_driver target_driver
# warn: driver_branch target_driver ptx_fits_driver
remnants() { rpm -qa --qf '%{NAME}\n' 'akmod-nvidia*' 'xorg-x11-drv-nvidia*' 'nvidia-x11-drv*' 2>/dev/null || true; }
have_remnants() { [ ! -x "$root/usr/bin/nvidia-uninstall" ] && [ -z "$(remnants)" ]; }
do_remnants() {
  local names
  if [ -x "$root/usr/bin/nvidia-uninstall" ]; then as_root nvidia-uninstall --silent; fi
  mapfile -t names < <(remnants)
  if [ "${#names[@]}" -gt 0 ]; then as_root dnf -y remove "${names[@]}"; fi
}
