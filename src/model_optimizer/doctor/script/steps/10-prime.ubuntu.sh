# title: the NVIDIA GPU of this hybrid machine is on
# for: hybrid_graphics
have_prime() { ! grep -qsx off "$root/etc/prime-discrete"; }
do_prime() { as_root prime-select on-demand; }
