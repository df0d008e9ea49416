export default function TopicsPage() { return <h1>Topics</h1>; }
