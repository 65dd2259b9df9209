"""For tests of this product and of plug-ins outside it: contracts, fake servers, recorded hosts."""
