{{- define "vigil.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of all objects. Pods add a number to it, and names of pods have at most 63 characters. */}}
{{- define "vigil.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "vigil.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "vigil.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "vigil.selector" -}}
app.kubernetes.io/name: {{ include "vigil.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "vigil.labels" -}}
{{ include "vigil.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "vigil.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "vigil.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "vigil.scheme" -}}{{ ternary "https" "http" .Values.tls.enabled }}{{- end -}}

{{/* The name of the service that gives each pod a name. */}}
{{- define "vigil.peers" -}}{{ include "vigil.fullname" . }}-peers{{- end -}}

{{/* What follows the name of a pod in its DNS name. */}}
{{- define "vigil.domain" -}}
{{ include "vigil.peers" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "vigil.initialCluster" -}}
{{- $members := list -}}
{{- $name := include "vigil.fullname" . -}}
{{- $scheme := include "vigil.scheme" . -}}
{{- $domain := include "vigil.domain" . -}}
{{- range $i := until (int .Values.replicas) -}}
{{- $members = append $members (printf "%s-%d=%s://%s-%d.%s:2380" $name $i $scheme $name $i $domain) -}}
{{- end -}}
{{- join "," $members -}}
{{- end -}}

{{- define "vigil.serverSecret" -}}{{ default (printf "%s-server" (include "vigil.fullname" .)) .Values.tls.serverSecret }}{{- end -}}
{{- define "vigil.peerSecret" -}}{{ default (printf "%s-peer" (include "vigil.fullname" .)) .Values.tls.peerSecret }}{{- end -}}
{{- define "vigil.clientSecret" -}}{{ default (printf "%s-client" (include "vigil.fullname" .)) .Values.tls.clientSecret }}{{- end -}}

{{/* The issuer of all certificates: the one of the values, or the chart's own authority. */}}
{{- define "vigil.issuerRef" -}}
{{- if .Values.tls.certManager.issuerRef.name -}}
{{- toYaml .Values.tls.certManager.issuerRef -}}
{{- else -}}
name: {{ include "vigil.fullname" . }}-ca
kind: Issuer
group: cert-manager.io
{{- end -}}
{{- end -}}
