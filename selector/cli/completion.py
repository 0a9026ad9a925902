"""`attn-select completion`: shell completion, answered by the command itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selector.cli import output
from selector.cli.errors import UsageError
from selector.cli.parser import Subparsers, add_command

if TYPE_CHECKING:
    from argparse import Namespace

__all__ = ["register"]

BASH = """\
# attn-select completion for bash: eval "$(attn-select completion bash)"
_attn_select() {
    local line="${COMP_LINE:0:COMP_POINT}" found
    found=$(attn-select __complete --bash -- "$line" 2>/dev/null)
    local IFS=$'\\n'
    COMPREPLY=($found)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _attn_select attn-select
"""

ZSH = """\
#compdef attn-select
# attn-select completion for zsh: source <(attn-select completion zsh)
_attn_select() {
    local -a found plain open
    found=("${(@f)$(attn-select __complete -- "${words[@]:1:$((CURRENT - 1))}" 2>/dev/null)}")
    found=(${found:#})
    if (( ! $#found )); then _files; return; fi
    open=(${(M)found:#*=})
    plain=(${found:#*=})
    (( $#open )) && compadd -S '' -- $open
    (( $#plain )) && compadd -- $plain
}
compdef _attn_select attn-select
"""

FISH = """\
# attn-select completion for fish: attn-select completion fish | source
function __attn_select
    set -l words (commandline -opc) (commandline -ct)
    attn-select __complete -- $words[2..-1] 2>/dev/null
end
complete -c attn-select -a '(__attn_select)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def register(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    add_command(
        subparsers,
        "completion",
        run,
        help="shell completion",
        description=(
            "Print the completion script of a shell. It completes commands, options, axes and their values, presets,\n"
            "packs and candidates."
        ),
        examples=(
            'completion bash    # eval "$(attn-select completion bash)"',
            "completion zsh     # source <(attn-select completion zsh)",
            "completion fish    # attn-select completion fish | source",
        ),
        words="SHELL",
        words_usage="SHELL",
        words_help="bash, zsh or fish",
    )


def run(arguments: Namespace) -> int:
    """Print a script."""
    shells = ", ".join(SCRIPTS)
    if len(arguments.words) != 1:
        raise UsageError(f"completion takes a shell: {shells}")
    shell = arguments.words[0]
    if shell not in SCRIPTS:
        from selector.vocabulary import nearest

        near = nearest(shell, SCRIPTS)
        raise UsageError(f"no completion for {shell!r}: {shells}", f"did you mean {near}?" if near else None)
    output.write(SCRIPTS[shell])
    return 0
