# title: upgrades leave the driver alone
# for: module_matches_library driver_installed module_flavour dkms_built driver_library runtime_fits_driver target_driver
# warn: driver_branch target_driver ptx_fits_driver
have_pin() { grep -qs nvidia "$root/etc/dnf/plugins/versionlock.list"; }
do_pin() {
  as_root dnf -y install python3-dnf-plugin-versionlock
  as_root dnf versionlock add '*nvidia*'
}
