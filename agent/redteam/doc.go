// Package redteam runs hostile images on a host as the agent runs a renter's, and verifies that each attack fails. It
// has no code besides tests. The host, its neighbours, the metadata services and the internet that the images attack
// are namespaces of the test, with no connection outside: no packet reaches an address that the test did not create.
package redteam
