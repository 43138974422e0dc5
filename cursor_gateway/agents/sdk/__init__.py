"""Axis: Cursor's SDK bridge, one process for all runs, which calls back over HTTP.

The bridge is Cursor's, in the package `cursor-sdk`, and nothing of it is imported: the gateway
starts the program and speaks its published protocol, `sdk.v1` (Connect with JSON over loopback).

    SdkAgent ── Bridge: the process, its handshake, its restarts
       │           └── Connect: requests and streams
       └── SdkRun ── Sending: one message, and what the bridge tells of it
             └── BridgeAgent: an agent in the bridge, for as long as a conversation lasts
                   └── ToolCalls <── Callbacks: the server that the bridge calls tools at
"""
