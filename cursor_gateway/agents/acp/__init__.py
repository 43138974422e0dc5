"""Axis: Cursor's CLI as an ACP server, `cursor-agent acp`: a process for each live conversation.

It speaks JSON-RPC over its stdin and stdout (Agent Client Protocol 1). It stays between answers, so
that only the first one waits for its start.

    AcpAgent ── WarmAgents: sessions that were made before anybody asked
       │      └─ ChatSessions: those of finished chats, whose processes may have ended since
       └── AcpRun: one prompt, for one answer or, with calls, for several
             └── AcpSession: a process, the one session in it, and the relay's for its tools
                   └── Peer: requests and answers, one line each (wire.py)
"""
