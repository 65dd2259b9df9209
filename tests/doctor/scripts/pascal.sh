#!/usr/bin/env bash
# Made by `mopt doctor --script` from what was read on 2026-11-30. Read it before you run it.
# It makes so:
#   nothing: a script has nothing to do here
# What is so already is left alone, so it may be run again at any time. It stops where a
# reboot or a person is needed, and goes on from there. With --check it only says what is
# missing. Where root is needed it asks for it with sudo.

# ... prelude

made_for='debian 12'
if [ "$(os_release ID) $(os_release VERSION_ID)" != "$made_for" ]; then
  by_hand "this script is for $made_for" "make one here: mopt doctor --script"
fi

if command -v nvidia-smi >/dev/null; then timeout 30 nvidia-smi -L || true; fi

printf '%s\n' 'left to you: NVIDIA GeForce GTX 1070 is too old for vLLM and TensorRT: compute capability 6.1' 'a GPU of 7.5 (Turing, 2018) or newer is needed' 'llama.cpp still builds for this one; the CPU engines work: mopt optimize MODEL'
left=$((left + 1))

# ... finish
