"""The Nebulous Protocol over any STOMP broker: verbs, services that always answer, and their callers.

`envelope`, `errors`, `context`, `signature` and `verbs` wait for nothing and know no transport; `client`,
`responder` and `jobs` build on `nebula.stomp.client`. Nothing here knows our broker's inside.
"""
