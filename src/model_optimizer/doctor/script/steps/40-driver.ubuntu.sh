# title: the driver, of a branch that is served
# for: driver_installed module_flavour dkms_built driver_library runtime_fits_driver target_driver
# warn: driver_branch target_driver ptx_fits_driver
have_driver() { [ -n "$(installed "$driver_package")" ]; }
do_driver() {
  apt_get update
  apt_get install "$driver_package"
}
