"""Why a run failed, named from its logs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.diagnosis.explanation import Explanation, Note, Sure
from orchestrator.diagnosis.log_reading import LogSource, Reading, Sighting, harmless, read_logs
from orchestrator.diagnosis.signatures.all_signatures import BY_ID
from orchestrator.diagnosis.signatures.secondary import HANGS, SILENT_HANG
from orchestrator.diagnosis.signatures.signature import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.diagnosis.signatures.signature import Signature
    from orchestrator.model.finding import Finding

__all__ = ["LogSource", "explain"]

FIND_OUT = (
    "run again with --debug (NCCL_DEBUG=INFO, TORCH_DISTRIBUTED_DEBUG=DETAIL), and while it hangs: ddp-orch stacks"
)
CERTAIN_FROM = 10  # weight: below it a line has its cause nearly always, not always
RAISED_WEIGHT = 9  # above what is only likely: whoever raised an exception of its own needs no other cause
# What only says that something ended: these leave any fact beside them free to be the reason.
_EMPTY = {"worker_failed", "sibling_was_ended", "exit_barrier", "slurm_step_failed", "broken_pipe"}
# Exceptions by which torch and Python pass on that something failed elsewhere.
_PASSES_ON = {
    "ChildFailedError", "SignalException", "DistBackendError", "DistStoreError", "DistNetworkError", "DistError",
    "CalledProcessError", "ProcessRaisedException", "ProcessExitedException", "SystemExit", "RendezvousError",
}  # fmt: skip
_MOST_OTHERS = 12
_GAP = "\x00"  # stands where a line does not say what a sentence would
_DEFAULTS = {"peer": "the other host", "interface": "an interface", "file": "a file", "rank": "another rank"}


def explain(
    sources: Sequence[LogSource],
    *,
    failed: bool = False,
    hung: bool = False,
    addresses: Mapping[str, str] | None = None,
    findings: Sequence[Finding] = (),
) -> Explanation:
    """Name the cause of a failure.

    Args:
        sources: the logs, in the order of arrival where that is known.
        failed: the run is known to have failed, whatever its logs say.
        hung: it is known to have stood still.
        addresses: address -> inventory name, for what the lines say of peers.
        findings: what preflight found wrong before the run, and what was not mended.
    Returns:
        The cause, or that it is not known; never a line that only follows another failure.
    """
    reading = read_logs(sources)
    known = dict(addresses or {})
    sightings = [_stranger(one, known) for one in reading.sightings]
    sightings = [one for one in sightings if one.raised is None or one.signature or one.raised.type not in _PASSES_ON]
    passed_on = len(reading.sightings) != len(sightings)
    told = _chosen(sightings, failed=failed or hung or passed_on)
    answer = _answer(told, reading, known, findings, failed=failed or hung or passed_on, hung=hung)
    others = [one for one in sightings if one is not told]
    notes = [_note(one, known) for one in sorted(others, key=_rank_of)[:_MOST_OTHERS]]
    unusual = tuple(reading.unusual) if answer.cause is None else ()
    return replace(answer, others=tuple(notes), unusual=unusual)


def _chosen(sightings: Sequence[Sighting], *, failed: bool) -> Sighting | None:
    """Choose what stands for the cause; a secondary one where nothing else does, None where nothing failed."""
    primary = [one for one in sightings if one.kind is Kind.PRIMARY]
    secondary = [one for one in sightings if one.kind is Kind.SECONDARY]
    facts = [one for one in sightings if one.kind is Kind.CONTRIBUTING]
    if primary:
        return _first(primary)
    telling = [one for one in secondary if one.signature is not None and one.signature.id not in _EMPTY]
    suspects = {name for one in telling if one.signature for name in one.signature.suspects}
    fitting = [one for one in facts if one.signature is not None and (not telling or one.signature.trouble in suspects)]
    if fitting and (failed or secondary):
        return _first(fitting)
    return _first(telling or secondary) if secondary else None


def _rank_of(sighting: Sighting) -> tuple[int, int, int]:
    """Sort by kind, then the most specific, then the first to arrive."""
    kinds = {Kind.PRIMARY: 0, Kind.CONTRIBUTING: 1, Kind.SECONDARY: 2}
    return kinds[sighting.kind], -_weight(sighting), sighting.order


def _weight(sighting: Sighting) -> int:
    return sighting.signature.weight if sighting.signature else RAISED_WEIGHT


def _first(sightings: Sequence[Sighting]) -> Sighting:
    """Choose the most specific one; of several, the earliest where all have a time, else the first to arrive."""
    most = max(_weight(one) for one in sightings)
    best = [one for one in sightings if _weight(one) == most]
    if all(one.at is not None for one in best):
        return min(best, key=lambda one: (one.at or 0.0, one.order))
    return min(best, key=lambda one: one.order)


def _answer(
    told: Sighting | None,
    reading: Reading,
    addresses: Mapping[str, str],
    findings: Sequence[Finding],
    *,
    failed: bool,
    hung: bool,
) -> Explanation:
    if told is None:
        return _without_words(reading, findings, failed=failed, hung=hung)
    if told.signature is None:
        return _from_exception(told)
    finding = _finding(told.signature.suspects, findings)
    if finding is not None:
        return _from_finding(finding, _filled(told.signature.cause, told, addresses), told)
    return _from_signature(told, told.signature, addresses)


def _without_words(reading: Reading, findings: Sequence[Finding], *, failed: bool, hung: bool) -> Explanation:
    """Answer where no line that is known tells anything."""
    finding = (_finding(HANGS, findings) if hung else None) or (_only(findings) if failed else None)
    if finding is not None:
        return _from_finding(finding, "the run stood still" if hung else "the run failed", None)
    if hung:
        return _from_silence()
    if failed or reading.errors:
        return Explanation(Sure.UNKNOWN, "something failed, and the logs do not say why", find_out=FIND_OUT)
    return Explanation(Sure.NOTHING, "nothing wrong found")


def _from_silence() -> Explanation:
    """Answer for a run that stood still and left no line about it."""
    return Explanation(
        sure=Sure.UNKNOWN,
        sentence=SILENT_HANG.cause,
        follows=SILENT_HANG,
        trouble=SILENT_HANG.trouble,
        check=SILENT_HANG.check,
        try_this=SILENT_HANG.try_this,
        confirms=SILENT_HANG.confirms,
        find_out=FIND_OUT,
    )


def _from_signature(told: Sighting, signature: Signature, addresses: Mapping[str, str]) -> Explanation:
    follows = signature.kind is Kind.SECONDARY
    certain = told.kind is Kind.PRIMARY and signature.weight >= CERTAIN_FROM
    sure = Sure.UNKNOWN if follows else Sure.CERTAIN if certain else Sure.LIKELY
    evidence = told.evidence
    peer = addresses.get(told.groups.get("peer", "").strip("[]"), "")
    named = told.groups.get("rank", "")
    cause = _filled(signature.cause, told, addresses)
    where = f" ({told.raised.where})" if told.raised and told.raised.where else ""
    says = f"what went first is not in these logs: {cause}" if follows else f"{cause}{where}"
    return Explanation(
        sure=sure,
        sentence=_by(told, says),
        cause=None if follows else signature,
        follows=signature if follows else None,
        trouble=signature.trouble,
        host=(peer if follows else "") or evidence.host,
        rank=int(named) if follows and named else evidence.rank,
        evidence=(told.shown(),),
        not_this=_filled(signature.not_this, told, addresses),
        check=_filled(signature.check, told, addresses),
        try_this=_filled(signature.try_this, told, addresses),
        confirms=signature.confirms,
        check_before=signature.check_before,
        find_out=FIND_OUT if follows else "",
    )


def _from_exception(told: Sighting) -> Explanation:
    evidence, raised = told.evidence, told.raised
    if raised is None:
        raise TypeError(told)
    who = f"rank {evidence.rank}" if evidence.rank is not None else "the script"
    on = f" on {evidence.host}" if evidence.host else ""
    message = f": {harmless(raised.message)}" if raised.message else ""
    where = f" ({raised.where})" if raised.where else ""
    return Explanation(
        sure=Sure.LIKELY,
        sentence=f"{who}{on} raised {raised.type}{message}{where}",
        trouble="raised",
        host=evidence.host,
        rank=evidence.rank,
        evidence=(told.shown(),),
        check=f"the traceback above line {evidence.line} of {evidence.source}",
    )


def _from_finding(finding: Finding, what: str, told: Sighting | None) -> Explanation:
    on = f" on {finding.host}" if finding.host else ""
    signature = told.signature if told else None
    return Explanation(
        sure=Sure.LIKELY,
        sentence=f"{what}; preflight had found what explains it{on}: {harmless(finding.seen)}",
        cause=signature if signature and signature.kind is not Kind.SECONDARY else None,
        follows=signature if signature and signature.kind is Kind.SECONDARY else None,
        finding=finding,
        trouble=finding.check,
        host=finding.host,
        evidence=(told.shown(),) if told else (),
        check=f"ddp-orch preflight --only {finding.check}",
        try_this=finding.try_this,
        confirms=signature.confirms if signature else "",
        check_before=finding.check,
    )


def _finding(suspects: Sequence[str], findings: Sequence[Finding]) -> Finding | None:
    """Return the finding of the first suspect that preflight found wrong."""
    return next((one for name in suspects for one in findings if one.check == name), None)


def _only(findings: Sequence[Finding]) -> Finding | None:
    """Return a finding where all are of one check: more would be a guess."""
    return findings[0] if len({one.check for one in findings}) == 1 else None


def _note(sighting: Sighting, addresses: Mapping[str, str]) -> Note:
    if sighting.signature is None:
        return Note("raised", "primary", _from_exception(sighting).sentence, sighting.shown())
    says = _by(sighting, _filled(sighting.signature.cause, sighting, addresses))
    return Note(sighting.signature.trouble, sighting.kind.value, says, sighting.shown())


def _by(sighting: Sighting, says: str) -> str:
    """Put before a sentence who said it."""
    rank, host = sighting.evidence.rank, sighting.evidence.host
    who = " on ".join(([f"rank {rank}"] if rank is not None else []) + ([host] if host else []))
    return f"{who}: {says}" if who else says


def _filled(text: str, sighting: Sighting, addresses: Mapping[str, str]) -> str:
    """Put what the line says into a sentence; what it does not say leaves no gap."""
    values = {**_DEFAULTS, **{name: harmless(value) for name, value in sighting.groups.items()}}
    peer = values["peer"].strip("[]")
    values["peer"] = f"{addresses[peer]} ({peer})" if peer in addresses else peer
    filled = re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], _GAP), text)
    return re.sub(rf" ?\({_GAP}\)| ?[:=] ?{_GAP}| ?{_GAP}", "", filled)


def _stranger(sighting: Sighting, addresses: Mapping[str, str]) -> Sighting:
    """Tell a caller who is no host of the run from a peer."""
    peer = sighting.groups.get("peer", "").strip("[]")
    instead = sighting.signature.if_stranger if sighting.signature else ""
    if not instead or not addresses or not peer or peer in addresses or peer in addresses.values():
        return sighting
    return replace(sighting, signature=BY_ID[instead])
