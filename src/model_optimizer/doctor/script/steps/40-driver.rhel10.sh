# title: the driver, of a branch that is served
# for: driver_installed module_flavour dkms_built driver_library runtime_fits_driver target_driver
# warn: driver_branch target_driver ptx_fits_driver
have_driver() { case $(installed "$driver_package") in "$branch".*) return 0 ;; *) return 1 ;; esac; }
do_driver() {
  as_root dnf -y install python3-dnf-plugin-versionlock
  as_root dnf versionlock add "*nvidia*$branch*" # the branch: there are no module streams here
  as_root dnf -y install --allowerasing "$driver_package"
}
