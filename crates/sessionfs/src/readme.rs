//! The text of the file `README`.

/// The text.
pub(crate) const TEXT: &str = "lastwords mini-HOWTO: sessions of applications as a tracefs\n\
\n\
# echo 0 > tracing_on : quick way to disable recording\n\
# echo 1 > tracing_on : quick way to re-enable recording\n\
\n\
  trace\t\t\t- The events that are in the rings. Reading does not consume them.\n\
\t\t\t  Opening the file with truncation (> trace) clears the rings.\n\
  trace_pipe\t\t- A consuming read: each event is returned once. Blocks until there are events.\n\
  trace_clock\t\t- The clock of the session. It is chosen when the session starts.\n\
  trace_marker\t\t- Writes into this file are recorded as the event ftrace:print (sessions of a user only)\n\
  tracing_cpumask\t- The CPUs whose events are recorded\n\
  trace_options\t\t- The options, one a line; a prefix of \"no\" means disabled\n\
  options/\t\t- The same, one file an option\n\
  buffer_size_kb\t- The size of a CPU's rings in KiB. It can be changed in sessions that mkdir made.\n\
  buffer_total_size_kb\t- The size of all rings in KiB\n\
  buffer_subbuf_size_kb\t- The size of a page of trace_pipe_raw in KiB\n\
  snapshot\t\t- 1: allocate the spare rings, and take a snapshot; 2: clear the snapshot; 0: free it.\n\
\t\t\t  Reading shows the events of the snapshot.\n\
  snapshot_enabled\t- 1: allocate the spare rings; 0: free them\n\
  snapshot_pipe\t\t- A consuming read of the snapshot\n\
  events/\t\t- Providers and events; each has enable, filter, trigger, format, id\n\
  set_event\t\t- Events that are enabled; echo prov:event or !prov:event, globs are allowed\n\
  set_event_pid\t\t- Only events of these threads are recorded; echo > set_event_pid: those of all\n\
  set_event_notrace_pid\t- No events of these threads are recorded\n\
  available_events\t- Events that the session knows: those that the application has reached\n\
  error_log\t\t- Why the last writes were refused\n\
  instances/\t\t- Channels that were added to the session, and the other live sessions. mkdir adds a channel to an\n\
\t\t\t  application's session; in a session of the user, it makes another session of the user\n\
  per_cpu/\t\t- trace, trace_pipe, stats and snapshot of one CPU; trace_pipe_raw and snapshot_raw:\n\
\t\t\t  pages of ftrace, as events/header_page and events/*/*/format tell\n\
  saved_cmdlines\t- Names of threads\n\
  saved_tgids\t\t- Processes of threads\n\
  free_buffer\t\t- Closing this file clears the rings\n\
\n\
docs/MOUNT.md of lastwords describes each file and how it differs from the kernel's.\n";
