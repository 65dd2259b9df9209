# title: no driver from NVIDIA's installer file beside the packages
# for: driver_installed module_flavour dkms_built driver_library runtime_fits_driver target_driver
# warn: driver_branch target_driver ptx_fits_driver
have_remnants() { [ ! -x "$root/usr/bin/nvidia-uninstall" ]; }
do_remnants() { as_root nvidia-uninstall --silent; }
