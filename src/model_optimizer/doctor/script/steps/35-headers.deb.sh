# title: the headers of the running kernel
# for: kernel_headers dkms_built driver_installed module_flavour driver_library runtime_fits_driver target_driver
# place: ubuntu debian
# warn: kernel_headers driver_branch target_driver ptx_fits_driver
have_headers() { [ -e "$root/lib/modules/$(uname -r)/build" ]; }
do_headers() {
  apt_get update
  apt-cache show "linux-headers-$(uname -r)" >/dev/null 2>&1 ||
    by_hand "the archive has no headers for kernel $(uname -r) any more" 'sudo apt-get full-upgrade && sudo reboot'
  apt_get install "linux-headers-$(uname -r)"
}
