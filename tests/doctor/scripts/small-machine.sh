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

printf '%s\n' 'left to you: the CPU has neither AVX2 nor NEON; PyTorch and ONNX Runtime wheels need one of them' 'use a machine from 2013 or later'
left=$((left + 1))

printf '%s\n' 'left to you: Python 3.10.12 is too old' 'install Python 3.11 or 3.12 and make the virtual environment with it'
left=$((left + 1))

# ... finish
