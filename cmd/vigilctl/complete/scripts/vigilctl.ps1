# Completion of vigilctl for PowerShell.
#
# Nothing here evaluates text, neither what is typed nor what vigilctl offers. vigilctl offers only words without characters that are
# special in a shell.

Register-ArgumentCompleter -Native -CommandName 'vigilctl' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $words = @()
    foreach ($element in @($commandAst.CommandElements | Select-Object -Skip 1)) {
        if ($element.Extent.EndOffset -ge $cursorPosition) { break }
        if ($element -is [System.Management.Automation.Language.StringConstantExpressionAst]) {
            $words += $element.Value
        } else {
            $words += $element.Extent.Text
        }
    }
    # Older versions leave out an empty argument unless it is written with quotes.
    $last = "$wordToComplete"
    if ($last -eq '' -and ($PSVersionTable.PSVersion -lt [version]'7.3' -or $PSNativeCommandArgumentPassing -eq 'Legacy')) {
        $last = '""'
    }
    $program = $commandAst.GetCommandName()
    if ($program -notmatch '[/\\]') { $program = 'vigilctl' }
    $lines = @(& $program __complete @words $last 2>$null)
    if ($lines.Count -eq 0 -or $lines[-1] -notmatch '^:\d+$') { return }
    $directive = [int]$lines[-1].Substring(1)

    $flag = ''
    if ($wordToComplete -match '^-[^=]*=') { $flag = $Matches[0] }
    $space = ' '
    if ($directive -band 2) { $space = '' }
    $offered = 0
    foreach ($line in $lines[0..($lines.Count - 1)]) {
        $name, $about = $line -split "`t", 2
        $name = $flag + $name
        if ($line -eq '' -or $line.StartsWith(':') -or -not $name.StartsWith($wordToComplete)) { continue }
        if (-not $about) { $about = $name }
        $offered++
        [System.Management.Automation.CompletionResult]::new($name + $space, $name, 'ParameterValue', $about)
    }
    # An empty text, so that names of files are not completed.
    if ($offered -eq 0 -and ($directive -band 4)) { '' }
}
