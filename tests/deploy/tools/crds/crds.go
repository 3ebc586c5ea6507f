// Package crds pins where the tests take Prometheus Operator's and Karmada's CRDs from; of these
// modules nothing but YAML files is used.
package crds
