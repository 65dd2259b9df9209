# title: the fabric manager runs
# for: fabric_manager
# place: ubuntu debian rhel9 rhel10
have_fabric() { systemctl is-active --quiet nvidia-fabricmanager; }
do_fabric() { as_root systemctl enable --now nvidia-fabricmanager; }
