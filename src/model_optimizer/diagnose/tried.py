"""What people write beside a log when the usual answer was tried, and what is left to look at then."""

TRIED: dict[str, tuple[str, ...]] = {
    "tried upgrade": (
        "no available upgrade", "newest there is", "already upgraded", "upgraded already", "already updated",
        "already on the newest", "already on the latest", "already the latest", "is the latest release",
        "is the newest release", "newest release already", "on the newest release", "after upgrading",
        "upgrading changed nothing", "upgrading did not", "upgrading does not", "upgrade did not",
        "update did not", "updating did not", "latest version already", "no newer version",
        "no newer release",
    ),
    "tried reboot": (
        "after reboot", "after a reboot", "after the reboot", "already rebooted", "rebooted but",
        "rebooted twice", "rebooted three", "rebooting does not", "rebooting did not", "reboot did not",
        "reboot does not", "each boot", "every boot", "after each reboot", "after every reboot",
        "two reboots", "second reboot",
    ),
    "tried reinstall": (
        "reinstalled", "installed again", "installed it again", "fresh install", "clean install",
        "reinstalling did not", "reinstalling does not", "in a new environment", "in a fresh environment",
    ),
    "tried download": (
        "fresh download", "downloaded again", "downloaded it again", "downloaded twice", "pulled again",
        "pulled it again", "checksums match", "checksum matches", "sha256 matches",
    ),
    "tried regenerate": ("regenerated", "generated again", "generated it again", "generated anew"),
    "tried same version": (
        "same tensorrt version", "same version of tensorrt", "identical tensorrt version",
        "versions are the same", "versions match", "versions are identical", "only one tensorrt is installed",
    ),
    "tried older": (
        "--allow-downgrades", "downgraded to", "downgrading to", "rolled back to", "going back to",
        "it ran on 0.", "it ran on 1.", "worked on 0.", "worked with 0.", "works with 0.", "works on 0.",
        "worked until", "did its work until", "worked fine before the update", "worked before the upgrade",
        "it used to work",
    ),
    "tried something": (
        "did not help", "didn't help", "does not help", "doesn't help", "no difference", "changed nothing",
        "changes nothing", "nothing changed", "did not change", "didn't change", "same thing\"",
        "same result", "same failure", "still the same", "same message", "message is the same",
        "error is the same", "same error again", "same error as before", "same error after", "to no avail",
        "without success", "did not move", "already tried", "tried already", "still fails after",
        "makes no change",
    ),
}  # fmt: skip
"""Phrases by the kind of answer that was tried; a signature names the kind in its `not_when`, or in its
`requires` when it is what is left. Those in DOUBTS make any answer less sure."""

DOUBTS = {
    "tried something": "line {line} says that something was tried and did not help: see whether it was this",
    "tried older": "line {line} speaks of an older version that worked: compare the two",
}

INSTEAD = {
    "tried upgrade": (
        "It was upgraded already: try the last release that worked, or look for what the new one dropped."
    ),
    "tried reboot": (
        "It was rebooted already: two versions are installed, or the old one is loaded again at each boot."
    ),
    "tried reinstall": "It was reinstalled already: ask which copy is really loaded, and from where.",
    "tried download": (
        "The files were loaded anew already: ask whether this version of the program reads their format."
    ),
    "tried regenerate": "It was made anew already: ask whether the program that reads it knows its format.",
    "tried same version": "The versions are said to be the same: compare the files that are really loaded.",
}
"""What to look at when the usual answer of that kind was tried."""
