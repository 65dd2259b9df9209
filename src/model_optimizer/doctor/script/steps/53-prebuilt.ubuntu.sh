# title: the driver's module is there for the running kernel
# for: module_loaded
have_prebuilt() { modinfo nvidia >/dev/null 2>&1; }
do_prebuilt() {
  apt_get update
  apt-cache show "$modules_package-$(uname -r)" >/dev/null 2>&1 ||
    by_hand "Ubuntu has no built module for kernel $(uname -r)" 'sudo apt-get full-upgrade && sudo reboot'
  apt_get install "$modules_package-$(uname -r)"
}
