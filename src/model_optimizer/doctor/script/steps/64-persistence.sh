# title: the driver stays loaded (persistence)
# for: persistence
# warn: persistence
# place: ubuntu debian rhel9 rhel10
have_persistence() { systemctl is-active --quiet nvidia-persistenced; }
do_persistence() { as_root systemctl enable --now nvidia-persistenced; }
