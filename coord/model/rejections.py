"""Why an event had no effect. Expected, definite, and part of the record."""

import enum


class Rejection(enum.StrEnum):
    """In order of precedence: where several apply, the first is given."""

    WRONG_CLUSTER = "wrong_cluster"
    NOT_CONFIGURED = "not_configured"
    ALREADY_CONFIGURED = "already_configured"
    UNKNOWN_EVENT = "unknown_event"
    REQUEST_TOO_OLD = "request_too_old"
    REPORT_GAP = "report_gap"
    STALE_TERM = "stale_term"
    INVALID = "invalid"
    UNKNOWN_HOST = "unknown_host"
    HOST_ID_IN_USE = "host_id_in_use"
    STALE_INCARNATION = "stale_incarnation"
    HOST_NOT_LIVE = "host_not_live"
    HOST_BUSY = "host_busy"
    UNKNOWN_JOB = "unknown_job"
    DUPLICATE_JOB = "duplicate_job"
    JOB_FINISHED = "job_finished"
    UNKNOWN_ROLE = "unknown_role"
    OUT_OF_RANGE = "out_of_range"
    UNKNOWN_TASK = "unknown_task"
    STALE_GENERATION = "stale_generation"
    TASK_STOPPING = "task_stopping"
    STEP_WENT_BACK = "step_went_back"
    VERSION_WENT_BACK = "version_went_back"
    UNKNOWN_WEIGHTS = "unknown_weights"
    UNKNOWN_CHECKPOINT = "unknown_checkpoint"
    DUPLICATE_NAME = "duplicate_name"
    UNKNOWN_SWITCH = "unknown_switch"
    CYCLE = "cycle"
    UNKNOWN_DOMAIN = "unknown_domain"
    UNKNOWN_MAINTENANCE = "unknown_maintenance"
    MAINTENANCE_ACTIVE = "maintenance_active"
    NOT_PROPOSED = "not_proposed"
    STALE_PROPOSAL = "stale_proposal"
    STALE_TEST = "stale_test"
    UNKNOWN_QUEUE = "unknown_queue"
    QUEUE_BUSY = "queue_busy"
    STALE_ROSTER = "stale_roster"
    BEATS_TOO_OLD = "beats_too_old"
    NOTHING_TO_DO = "nothing_to_do"


EXPLANATIONS: dict[Rejection, str] = {
    Rejection.WRONG_CLUSTER: "sent to a cluster with another id; check the addresses given",
    Rejection.NOT_CONFIGURED: "the cluster has not recorded its settings yet; retry shortly",
    Rejection.ALREADY_CONFIGURED: "the cluster has its settings already",
    Rejection.UNKNOWN_EVENT: "these rules do not know the event; raise logic_version first",
    Rejection.REQUEST_TOO_OLD: "its outcome is forgotten by now; look at the state before retrying",
    Rejection.REPORT_GAP: "an earlier report is missing; resend from the one after the last",
    Rejection.STALE_TERM: "from a leader that has been replaced",
    Rejection.INVALID: "a field has a value that cannot be",
    Rejection.UNKNOWN_HOST: "no such host; see `coordctl host list`",
    Rejection.HOST_ID_IN_USE: "another live agent has this host id; give each its own --host-id",
    Rejection.STALE_INCARNATION: "the host has registered again since; stop and register anew",
    Rejection.HOST_NOT_LIVE: "the host was declared lost or removed; register again",
    Rejection.HOST_BUSY: "the host takes work or runs tasks; drain it first",
    Rejection.UNKNOWN_JOB: "no such job; see `coordctl job list`",
    Rejection.DUPLICATE_JOB: "a job of this name exists; choose another name",
    Rejection.JOB_FINISHED: "the job has ended",
    Rejection.UNKNOWN_ROLE: "the job has no such role; see `coordctl job show`",
    Rejection.OUT_OF_RANGE: "outside the role's min_replicas and max_replicas",
    Rejection.UNKNOWN_TASK: "no such task on this host",
    Rejection.STALE_GENERATION: "from a generation that has been replaced",
    Rejection.TASK_STOPPING: "the task is being stopped",
    Rejection.STEP_WENT_BACK: "a checkpoint at or after this step is committed already",
    Rejection.VERSION_WENT_BACK: "weights of this version or a newer one are known already",
    Rejection.UNKNOWN_WEIGHTS: "nobody has published weights of this version",
    Rejection.UNKNOWN_CHECKPOINT: "no such checkpoint is remembered; see `coordctl job show`",
    Rejection.DUPLICATE_NAME: "a host, switch, rail or device is named twice; name each once",
    Rejection.UNKNOWN_SWITCH: "a switch is named that the topology lacks; name it among switches",
    Rejection.CYCLE: "a switch is, over its uplinks, above itself; take one uplink away",
    Rejection.UNKNOWN_DOMAIN: "no domain of that level, or several; see `coordctl topology show`",
    Rejection.UNKNOWN_MAINTENANCE: "none of that number goes on; see `coordctl maintenance list`",
    Rejection.MAINTENANCE_ACTIVE: "one of its hosts is part of a maintenance that goes on already",
    Rejection.NOT_PROPOSED: "no quarantine of it is proposed; see `coordctl host list`",
    Rejection.STALE_PROPOSAL: "the proposal has changed since; look at it as it is now, and answer",
    Rejection.STALE_TEST: "the result of a test that the host is not asked for, or not any more",
    Rejection.UNKNOWN_QUEUE: "no such queue; see `coordctl queue list`",
    Rejection.QUEUE_BUSY: "jobs of it have not ended; cancel them or let them end first",
    Rejection.STALE_ROSTER: "it does not follow on the relay's roster; the relay sends all of it",
    Rejection.BEATS_TOO_OLD: "the beats waited at the relay for more than a quarter of the lease",
    Rejection.NOTHING_TO_DO: "it is so already; nothing was changed",
}
