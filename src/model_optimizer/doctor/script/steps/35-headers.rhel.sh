# title: the headers of the running kernel
# for: kernel_headers dkms_built driver_installed module_flavour driver_library runtime_fits_driver target_driver
# warn: kernel_headers driver_branch target_driver ptx_fits_driver
have_headers() { [ -e "$root/lib/modules/$(uname -r)/build" ]; }
do_headers() {
  as_root dnf -y install "kernel-devel-$(uname -r)" kernel-headers ||
    by_hand "the repositories have no headers for kernel $(uname -r) any more" 'sudo dnf -y upgrade kernel && sudo reboot'
}
