if [ "$missing" -gt 0 ]; then
  say "$missing to do; run it without --check to do it"
  exit 1
fi
if [ "$left" -gt 0 ]; then
  say "what a script can do is done; $left left to you, above"
  exit 1
fi
say 'all is as it should be; mopt doctor says the rest'
