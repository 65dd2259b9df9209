# title: the driver's module is loaded and answers
# for: module_loaded module_matches_library nouveau_off secure_boot driver_present driver_installed module_flavour kernel_headers dkms_built hybrid_graphics runtime_fits_driver target_driver
# warn: driver_branch target_driver ptx_fits_driver
# place: ubuntu debian rhel9 rhel10
have_module() { [ -e "$root/proc/driver/nvidia/version" ] && timeout 20 nvidia-smi -L >/dev/null 2>&1; }
do_module() {
  if [ ! -e "$root/proc/driver/nvidia/version" ]; then
    if command -v dkms >/dev/null; then as_root dkms autoinstall || true; fi
    if as_root modprobe nvidia && have_module; then return 0; fi
  fi
  reboot_point module # the old module, or nouveau, leaves only with the kernel
}
