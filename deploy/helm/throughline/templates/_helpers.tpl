{{/* The roles of the cluster that this chart is installed in; each is also a folder of files/rbac. */}}
{{- define "throughline.roles" -}}
{{- get (dict
  "all-in-one" "upstream,hub,edge"
  "standalone-hub" "hub"
  "standalone-edge" "edge"
  "sidecar" "edge") .Values.form -}}
{{- end }}

{{- define "throughline.labels" -}}
app.kubernetes.io/name: throughline
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The name of the objects: the release name, if it contains "throughline". */}}
{{- define "throughline.name" -}}
{{- ternary .Release.Name (printf "%s-throughline" .Release.Name) (contains "throughline" .Release.Name) -}}
{{- end }}

{{/* The ServiceAccount of the pods. */}}
{{- define "throughline.account" -}}
{{- if eq .Values.form "sidecar" }}{{ .Values.sidecar.serviceAccountName }}
{{- else }}{{ default (include "throughline.name" .) .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The image, by its digest where one is given. */}}
{{- define "throughline.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}
{{- with $image.tag }}{{ printf "%s:%s@%s" $image.repository . $image.digest }}
{{- else }}{{ printf "%s@%s" $image.repository $image.digest }}
{{- end }}
{{- else }}{{ printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* Not empty if the configuration names a kubeconfig of the Secret kubeconfigSecret. */}}
{{- define "throughline.needsKubeconfig" -}}
{{- $milo := dig "discovery" "milo" dict .Values.config | default dict }}
{{- $files := list (get $milo "kubeconfig") (get $milo "projectKubeconfig") }}
{{- if or .Values.clusters (contains "/etc/throughline/kubeconfig/" (join "," $files)) }}yes{{ end }}
{{- end }}

{{/* The folders of files/rbac that discovery needs in the cluster that this chart is installed in. */}}
{{- define "throughline.discoveryRights" -}}
{{- $secrets := dig "discovery" "kubeconfigSecrets" dict .Values.config | default dict }}
{{- $milo := dig "discovery" "milo" dict .Values.config | default dict }}
{{- $folders := list }}
{{- if eq .Values.clusterName (get $secrets "cluster") }}{{ $folders = append $folders "discovery-secrets" }}{{ end }}
{{- if and $milo (not (get $milo "kubeconfig")) }}{{ $folders = append $folders "discovery-milo" }}{{ end }}
{{- join "," $folders }}
{{- end }}

{{/* The number of shards. */}}
{{- define "throughline.shards" -}}
{{- dig "leaderElection" "shards" 1 .Values.config -}}
{{- end }}

{{/* What runs the pods. With several shards, a pod needs the ordinal that a StatefulSet gives it. */}}
{{- define "throughline.workload" -}}
{{- ternary "StatefulSet" "Deployment" (gt (include "throughline.shards" . | int) 1) -}}
{{- end }}

{{/* The configuration file. */}}
{{- define "throughline.config" -}}
{{- $own := dict "name" .Values.clusterName "inCluster" true
    "roles" (splitList "," (include "throughline.roles" .)) }}
{{- $clusters := list $own }}
{{- range .Values.clusters }}
{{- $clusters = append $clusters (dict "name" .name "roles" .roles
    "kubeconfig" "/etc/throughline/kubeconfig/config" "context" (default .name .context)) }}
{{- end }}
{{- toYaml (merge (dict "clusters" $clusters) .Values.config) }}
{{- end }}

{{/* The permissions in files/rbac/FOLDER (kustomize uses the same files): named after the release, bound to
     its ServiceAccount, without what the configuration does not need. */}}
{{- define "throughline.rights" -}}
{{- $ := index . 0 }}{{ $folder := index . 1 }}
{{- $orphans := ne "off" (dig "orphans" "mode" "report" $.Values.config) }}
{{- $events := dig "events" "enabled" true $.Values.config }}
{{- $touches := dig "touch" "enabled" true $.Values.config }}
{{- $own := include "throughline.name" $ }}
{{- $account := include "throughline.account" $ }}
{{- range splitList "\n---\n" ($.Files.Get (printf "files/rbac/%s/rules.yaml" $folder)) }}
{{- $object := fromYaml . }}
{{- $name := replace "throughline" $own $object.metadata.name }}
{{- $_ := set $object.metadata "name" $name }}
{{- if $object.metadata.namespace }}
{{- $namespace := dig "leaderElection" "leaseNamespace" $.Release.Namespace $.Values.config }}
{{- if eq $folder "discovery-secrets" }}{{ $namespace = $.Values.config.discovery.kubeconfigSecrets.namespace }}{{ end }}
{{- $_ := set $object.metadata "namespace" $namespace }}
{{- end }}
{{- if $object.subjects }}
{{- $_ := set $object.roleRef "name" $name }}
{{- if eq $.Values.form "sidecar" }}
{{- /* An instance beside the hub may already use the other name in this cluster. */}}
{{- $_ := set $object.metadata "name" (printf "%s-sidecar" $own) }}
{{- end }}
{{- $_ := set $object "subjects" (list
    (dict "kind" "ServiceAccount" "name" $account "namespace" $.Release.Namespace)) }}
{{- else }}
{{- $rules := list }}
{{- range $object.rules }}
{{- $isOrphans := and (has $folder (list "hub" "upstream")) (has "gateway.networking.k8s.io" .apiGroups) }}
{{- $isEvents := has "events" .resources }}
{{- if and (eq $folder "edge") (has "gateways" .resources) (not $touches) }}
{{- $_ := set . "verbs" (without .verbs "patch") }}
{{- end }}
{{- if and (or $orphans (not $isOrphans)) (or $events (not $isEvents)) }}{{ $rules = append $rules . }}{{ end }}
{{- end }}
{{- $_ := set $object "rules" $rules }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}

{{/* The container; `include` it in the pod template of an extension server:
     {{- include "throughline.container" .Subcharts.throughline | nindent 8 }} */}}
{{- define "throughline.container" -}}
{{- $isSidecar := eq .Values.form "sidecar" }}
{{- $port := ternary "throughline" "metrics" $isSidecar -}}
- name: throughline
  image: {{ include "throughline.image" . }}
  {{- with .Values.image.pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  args: [run, --config, /etc/throughline/config/config.yaml]
  {{- $isStateful := eq "StatefulSet" (include "throughline.workload" .) }}
  {{- if or $isStateful .Values.extraEnv }}
  env:
    {{- if $isStateful }}
    # The number at its end, modulo config.leaderElection.shards, is the shard.
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    {{- end }}
    {{- with .Values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  ports:
    - {name: {{ $port }}, containerPort: {{ dig "admin" "address" ":8080" .Values.config | splitList ":" | last }}}
  livenessProbe:
    httpGet: {path: /livez, port: {{ $port }}}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  {{- if not $isSidecar }}
  readinessProbe:
    httpGet: {path: /readyz, port: {{ $port }}}
    periodSeconds: 5
    timeoutSeconds: 5
  {{- end }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
    seccompProfile: {type: RuntimeDefault}
  volumeMounts:
    - {name: throughline-config, mountPath: /etc/throughline/config, readOnly: true}
    - {name: throughline-log, mountPath: /var/log/throughline}
    {{- if include "throughline.needsKubeconfig" . }}
    - {name: throughline-kubeconfig, mountPath: /etc/throughline/kubeconfig, readOnly: true}
    {{- end }}
    {{- if .Values.clustersSecret }}
    - {name: throughline-clusters, mountPath: /etc/throughline/clusters, readOnly: true}
    {{- end }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The volumes of that container. */}}
{{- define "throughline.volumes" -}}
- name: throughline-config
  configMap: {name: {{ include "throughline.name" . }}}
- name: throughline-log
  {{- .Values.log.volume | default (dict "emptyDir" (dict "sizeLimit" "1280Mi")) | toYaml | nindent 2 }}
{{- if include "throughline.needsKubeconfig" . }}
- name: throughline-kubeconfig
  secret: {secretName: {{ .Values.kubeconfigSecret }}, defaultMode: 288} # 0440
{{- end }}
{{- with .Values.clustersSecret }}
- name: throughline-clusters
  secret: {secretName: {{ . }}, defaultMode: 288} # 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A pod annotation, so that what takes effect only at a start of throughline starts a rollout. A running
     instance follows the list of clusters by itself, except the first, which is its own. */}}
{{- define "throughline.checksum" -}}
{{- $config := include "throughline.config" . | fromYaml }}
checksum/config: {{ set $config "clusters" (first $config.clusters) | toJson | sha256sum }}
{{- end }}
