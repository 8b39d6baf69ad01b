// Package redteam runs hostile images on a host as the agent runs a renter's, and shows each attack held. It has no
// code of its own. The host, its neighbours, the metadata services and the internet it attacks are namespaces of the
// test's own, with no way out: no packet reaches an address the test did not make.
package redteam
