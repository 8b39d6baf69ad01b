package front

import "strings"

// Start is the shortest way to a first cluster, as commands.
type Start struct {
	CLI  []Line
	Curl []Line
}

// Line is a command and what it does.
type Line struct{ Does, Command string }

// startLines returns the commands with this platform's address. They begin with sign-up for a visitor, and with sign-in
// for others.
func (s *Pages) startLines(signedIn bool) Start {
	api := strings.TrimSuffix(s.PublicURL, "/") + "/api/v1"
	login := Line{"Create an account", "muster login " + s.PublicURL + " --sign-up you@example.com"}
	if signedIn {
		login = Line{"Sign in; your browser asks you to confirm", "muster login " + s.PublicURL}
	}
	return Start{
		CLI: []Line{
			login,
			{"Add credit; unused credit can be refunded to your card", "muster billing topup 25"},
			{"See the price of two nodes with eight GPUs each", "muster estimate --nodes 2 --gpus 8 --gpu h100"},
			{"Rent them and run a command on every rank", "muster cluster create --nodes 2 --gpus 8 --gpu h100 " +
				"--image pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime --wait -- nvidia-smi"},
		},
		Curl: []Line{
			{"See a price, without an account", "curl '" + api + "/estimate?nodes=2&gpus_per_node=8&gpu=h100'"},
			{"Rent, with a token from your account page", "curl " + api +
				"/clusters -H \"Authorization: Bearer $MUSTER_TOKEN\" " +
				"-H 'Content-Type: application/json' -d '{\"nodes\": 2, \"gpus_per_node\": 8, \"gpu\": \"h100\", " +
				"\"image\": \"pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime\", \"command\": [\"nvidia-smi\"]}'"},
			{"Follow the output of all ranks", "curl '" + api + "/clusters/CLUSTER/logs?follow=true' " +
				"-H \"Authorization: Bearer $MUSTER_TOKEN\""},
		},
	}
}
