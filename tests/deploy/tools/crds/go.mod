module throughline/tests/deploy/tools/crds

go 1.26.0

require (
	github.com/karmada-io/karmada v1.16.0
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
