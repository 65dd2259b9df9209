# title: DKMS can be installed (it comes from EPEL)
# for: driver_installed module_flavour dkms_built driver_library runtime_fits_driver target_driver
# warn: driver_branch target_driver ptx_fits_driver
have_dkms() { [ -n "$(installed dkms)" ] || [ -n "$(dnf -q repoquery dkms 2>/dev/null || true)" ]; }
do_dkms() {
  if [ "$(os_release ID)" = rhel ]; then
    by_hand 'Red Hat keeps no DKMS, and EPEL must be added by you' \
      "sudo subscription-manager repos --enable codeready-builder-for-rhel-$(os_release VERSION_ID | cut -d . -f 1)-$(uname -m)-rpms" \
      'add EPEL as docs.fedoraproject.org/en-US/epel says'
  fi
  as_root dnf -y install dnf-plugins-core epel-release
  as_root dnf config-manager --set-enabled crb
}
