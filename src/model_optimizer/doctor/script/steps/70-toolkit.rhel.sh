# title: NVIDIA's container toolkit
# for: container_toolkit
# only: engine
# wait: no-toolkit
have_toolkit() { command -v nvidia-ctk >/dev/null; }
do_toolkit() {
  trusted_key "$toolkit_key" "$toolkit_key_is" /etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit
  as_root rpm --import "$root/etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit"
  # shellcheck disable=SC2016 # dnf itself puts the architecture there
  printf '%s\n' '[nvidia-container-toolkit]' 'name=NVIDIA container toolkit' "baseurl=$toolkit_repository"'/rpm/$basearch' \
    enabled=1 gpgcheck=0 repo_gpgcheck=1 gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit |
    write_file /etc/yum.repos.d/nvidia-container-toolkit.repo
  as_root dnf -y install nvidia-container-toolkit
}
